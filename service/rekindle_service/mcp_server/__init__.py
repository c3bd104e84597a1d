"""Jobs for agents by the Model Context Protocol: a client of the REST API that needs the extra ``[mcp]``."""
