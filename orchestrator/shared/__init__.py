"""What both sides know. Shipped to the pod: standard library, Python 3.8."""
