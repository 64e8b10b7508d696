"""The worker: claims jobs, runs them, records their outcomes, and takes back the jobs of dead workers."""
