"""The HTTP API: routes, the middleware around them, and the JSON of requests and responses.

Routes write intents into rows and read rows and run directories; they start no process and never call the scheduler.
"""
