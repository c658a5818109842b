"""Which distribution: energies, temperature schedules, enumeration."""
