"""The commands: one file each, with a function `register(application)`; heavy imports happen inside the commands."""
