"""Reports for operators: why a job does not run, and what is wrong with the database."""
