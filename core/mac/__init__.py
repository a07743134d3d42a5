"""This machine: memory, chip, network ports, sleep, service and health checks."""
