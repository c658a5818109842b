"""Kernels by name: what is understood, and one clear line for what is not."""

from __future__ import annotations

import pytest

from maskropolis.errors import InputError
from maskropolis.kernels.delayed import Delayed
from maskropolis.kernels.mixture import Mixture
from maskropolis.kernels.path import Path
from maskropolis.kernels.specification import build_kernel
from maskropolis.kernels.tempering import Tempering
from maskropolis.proof.certificate import specifications
from maskropolis.targets.energy import NORM, RAW


@pytest.mark.parametrize("specification", specifications())
def test_a_signature_builds_the_same_kernel_again(specification: str) -> None:
    kernel = build_kernel(specification, RAW)
    assert build_kernel(kernel.signature(), RAW) == kernel


def test_kernels_inside_kernels_get_the_energy_and_the_settings_that_are_theirs() -> None:
    delayed = build_kernel("delayed:kernel=path(k=3),scale=0.8", RAW)
    assert isinstance(delayed, Delayed) and delayed.kernel == Path(RAW, k=3) and delayed.scale == 0.8
    assert build_kernel("delayed:k=3", NORM) == build_kernel("delayed:kernel=path(k=3)", NORM)
    assert build_kernel("delayed", NORM, top_k=5).kernel.proposal.top_k == 5
    mixture = build_kernel("mixture:single-site=2,block(k=4,contiguous=yes)=0.5,choice=by-step", RAW)
    assert isinstance(mixture, Mixture) and mixture.weights == (2, 0.5) and mixture.choice == "by-step"
    assert mixture.parts[1].k == 4 and mixture.parts[1].contiguous and mixture.parts[1].energy == RAW
    tempering = build_kernel("tempering:kernel=mixture(path=1,block=1),ladder=1/1.3/2", NORM)
    assert isinstance(tempering, Tempering) and tempering.factors == (1, 1.3, 2) and tempering.kernel.weights == (1, 1)


@pytest.mark.parametrize(
    ("specification", "says"),
    [
        ("singel-site", "did you mean 'single-site'"),
        ("path:kk=2", "did you mean 'k'"),
        ("path:k=two", "expected a whole number"),
        ("path:k=0", "expected at least 1"),
        ("block:k", "expected key=value"),
        ("delayed:kernel=path(k=2", "do not match"),
        ("delayed:kernel=gibbs", "gibbs"),
        ("delayed:surrogate=unmaskd", "did you mean 'unmasked'"),
        ("informed:balancing=squrt", "did you mean 'sqrt'"),
        ("mixture:single-site=0", "positive weight"),
        ("mixture:single-site=a", "expected a number"),
        ("mixture:gibbs=1", "gibbs"),
        ("mixture:single-site=1,choice=by-steps", "did you mean 'by-step'"),
        ("tempering:ladder=1/0.5", "rising"),
        ("tempering:levels=1", "at least two"),
        ("tempering:ladder=1/x", "1/1.5/2"),
        ("tempering:levels=3,adapt=-1", "expected 0 or more"),
        ("tempering:adapt=9", "nothing to space anew"),
        ("tempering:ladder=1/1.2/1.4,levels=5", "contradict"),
        ("single-site:proposal=3", "malformed"),
    ],
)
def test_a_bad_specification_gets_one_clear_line(specification: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        build_kernel(specification, NORM)
    assert says in str(error.value) and "\n" not in str(error.value)
