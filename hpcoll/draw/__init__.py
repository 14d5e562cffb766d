"""Pictures: schedules in time, and algorithms side by side. matplotlib is imported on use."""
