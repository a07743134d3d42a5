"""A cluster in one process: the real node, with simulated time, network, disks and workers, and seeded faults.

What decides is real: `core/node` (recovery, answers, plan leader and member, supervisor, planning, roster enforcement,
message router, peers), liveness, the rosters' rules, the plan, the engine's scheduler and its steps. Simulated are
the clock, the control and data links, the worker processes, the disks, and what a stage computes.
`python -m tests.simulator SEED` shows what happens in one schedule.
"""
