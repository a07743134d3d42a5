"""The service on each Mac: links, plans, answers, and this Mac's worker."""
