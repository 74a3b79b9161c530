"""The rules of the verdict, from evidence. Shipped to the pod: standard library, Python 3.8."""
