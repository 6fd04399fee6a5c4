"""Language models that answer in JSON, with every answer kept. What is asked, and what is made of the answers, is decided by
the perturber and the judge; reward models are unknown here."""
