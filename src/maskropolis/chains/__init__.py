"""Running kernels: driver, run folders, diagnostics, certificate."""
