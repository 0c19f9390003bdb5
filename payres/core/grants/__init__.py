"""The rules of grants: clients, grant requests, consent, tokens, and what each access item permits."""
