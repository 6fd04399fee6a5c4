"""Language models that answer in JSON, with every answer kept: what is asked, and how it
travels."""
