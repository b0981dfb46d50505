"""One part of each kind, as another package may have them."""
