"""What commands print: tables, drawings and documents."""
