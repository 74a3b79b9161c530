"""How an agent is started, asked for and ended."""
