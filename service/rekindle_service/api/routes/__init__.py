"""The routes of the API, one module for each resource, with the JSON that they answer."""
