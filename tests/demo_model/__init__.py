"""How the demo model is made: facts and questions as data, corpus, training, export and score. See README.md here."""
