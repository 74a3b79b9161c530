"""Libraries of others, byte for byte as published: tomli 2.5.0 (MIT, tomli/LICENSE), since Python reads TOML from 3.11."""
