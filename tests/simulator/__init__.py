"""A cluster in one process: the real node, with simulated time, network, disks and workers, and seeded faults.

Real are all parts that decide: `core/node` (the plan machine and its driver, answers, plan member, supervisor,
planning, roster enforcement, message router, peers), liveness, the rosters' rules, the plan, the engine's scheduler and
its steps. Simulated are the clock, the control and data links, the worker processes, the disks, and a stage's
computation. `python -m tests.simulator SEED` shows the events of one schedule.
"""
