"""Faults: pods that can be broken, laptops that can be killed, and random schedules of both."""
