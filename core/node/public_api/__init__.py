"""The API for other programs: what they ask, who may ask, what they are answered."""
