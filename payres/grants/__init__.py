"""The rules of grants: who asks, what was granted, by whose consent, and what each access permits."""
