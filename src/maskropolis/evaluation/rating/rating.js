"use strict";
(() => {
  const main = document.querySelector("main");
  const items = [...document.querySelectorAll(".item")];
  const rater = main.dataset.rater;
  const place = `maskropolis-rating-${main.dataset.study}-${rater}`;
  const [bar, count, state] = [".progress", ".count", ".state"].map((name) => document.querySelector(name));
  let at = 0;
  let unsaved = false;

  const fields = (item) => [...item.querySelectorAll("fieldset")];
  const answer = (field) => field.querySelector("input:checked")?.value ?? "";
  const rated = (item) => fields(item).every(answer);

  // Answers survive a closed window where the browser allows it; the file is what counts.
  const remember = () => {
    const kept = {};
    for (const input of document.querySelectorAll("input:checked")) kept[input.name] = input.value;
    try { localStorage.setItem(place, JSON.stringify(kept)); } catch { /* private window */ }
  };
  const recall = () => {
    let kept = {};
    try { kept = JSON.parse(localStorage.getItem(place) ?? "{}"); } catch { /* private window */ }
    for (const input of document.querySelectorAll("input")) input.checked = kept[input.name] === input.value;
  };

  const show = (index) => {
    at = Math.max(0, Math.min(items.length - 1, index));
    items.forEach((item, number) => { item.hidden = number !== at; });
    document.getElementById("back").disabled = at === 0;
    document.getElementById("next").disabled = at === items.length - 1;
    mark(fields(items[at]).find((field) => !answer(field)) ?? fields(items[at])[0]);
    tell();
  };
  const mark = (chosen) => fields(items[at]).forEach((field) => field.classList.toggle("now", field === chosen));
  const tell = () => {
    const done = items.filter(rated).length;
    bar.setAttribute("aria-valuenow", done);
    bar.firstElementChild.style.width = `${(100 * done) / items.length}%`;
    count.textContent = `Sentence ${at + 1} of ${items.length}, ${done} rated`;
    document.getElementById("open").disabled = done === items.length;
    if (done === items.length && unsaved) state.textContent = "All rated: save your answers.";
  };

  const chosen = (field, advance) => {
    unsaved = true;
    remember();
    const rest = fields(items[at]);
    const following = rest[rest.indexOf(field) + 1];
    if (following) mark(following);
    tell();
    if (!following && advance && rated(items[at]) && at < items.length - 1) show(at + 1);
  };

  // A cell that a spreadsheet would run as a formula gets an apostrophe in front.
  const cell = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? "'" + text : text).replaceAll('"', '""')}"`;
  const save = () => {
    const names = fields(items[0]).map((field) => field.dataset.question);
    const rows = items.map((item) =>
      [rater, item.dataset.code, cell(item.querySelector(".sentence").textContent), ...fields(item).map(answer)]);
    const text = "\ufeff" + [["rater", "item", "text", ...names], ...rows].map((row) => row.join(",")).join("\r\n") + "\r\n";
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = `answers-rater-${rater}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    const open = items.filter((item) => !rated(item)).length;
    unsaved = open > 0;
    state.textContent = `Saved as ${link.download}` + (open ? `; ${open} still to rate.` : ". All rated, thank you.");
  };

  document.addEventListener("change", (event) => {
    const field = event.target.closest("fieldset");
    if (field) chosen(field, false);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowLeft") show(at - 1);
    else if (event.key === "ArrowRight") show(at + 1);
    else if (event.key === "s" || event.key === "S") save();
    else {
      const field = items[at].querySelector("fieldset.now");
      const input = /^[1-9]$/.test(event.key) ? field?.querySelector(`input[value="${event.key}"]`) : null;
      if (!input) return;
      input.checked = true;
      chosen(field, true);
    }
    event.preventDefault();
  });
  document.getElementById("back").addEventListener("click", () => show(at - 1));
  document.getElementById("next").addEventListener("click", () => show(at + 1));
  document.getElementById("open").addEventListener("click", () => show(items.findIndex((item) => !rated(item))));
  document.getElementById("save").addEventListener("click", save);
  window.addEventListener("beforeunload", (event) => { if (unsaved) event.preventDefault(); });

  document.querySelector("nav").hidden = false;
  recall();
  show(Math.max(0, items.findIndex((item) => !rated(item))));
})();
