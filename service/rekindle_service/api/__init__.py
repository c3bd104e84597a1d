"""The HTTP face: routes, who may use them, and what they show of rows and run directories.

Routes write intent into rows and read; they start nothing. API and engine meet only in the database.
"""
