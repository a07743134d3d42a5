"""How the demo model was made: its corpus, its training and its score. Not part of the wheel."""
