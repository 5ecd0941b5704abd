"""Trust: what makes a fact believable, readable only by whom it is for, and said only by whom it may be."""
