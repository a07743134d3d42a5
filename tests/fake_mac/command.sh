#!/bin/sh
# Answers as the command of a Mac by whose name it is called.
case "$(basename "$0") $*" in
  "sysctl -n machdep.cpu.brand_string") echo "Apple M4 Max" ;;
  "sw_vers -productVersion") echo 15.6.1 ;;
  "scutil --get ComputerName") echo "Ada’s MacBook Pro" ;;
  "socketfilterfw --getglobalstate") echo "Firewall is enabled. (State = 1)" ;;
  "caffeinate -i -s -w "*) exec tail --pid="$4" -f /dev/null ;;
  *) exit 1 ;;
esac
