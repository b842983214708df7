"""What crosses from one stage to the next: tables, model folders, documents."""
