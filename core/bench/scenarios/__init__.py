"""The ten scenarios: load on the API of real clusters, what each part of a request took, and what is asserted of it."""
