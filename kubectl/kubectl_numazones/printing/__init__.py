"""Output of commands: tables, drawings and documents."""
