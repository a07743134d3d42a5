"""Ten load tests of the API: requests, times of each part of a request, and limits that must hold."""
