"""How to fill in masked positions."""
