"""Reports for operators: reasons why a job does not run, and problems of the database."""
