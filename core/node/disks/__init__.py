"""Models and conversations on the Macs' disks: inventory, copies, downloads."""
