"""What people write, checked on load: pods.yaml and runbooks."""
