"""A market monitor on several instances: each filing, halt, article, report and alert once."""
