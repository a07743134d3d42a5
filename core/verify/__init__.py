"""`macluster verify`: checks of everything that can be proved on one Mac."""
