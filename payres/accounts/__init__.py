"""Who somebody is: passwords, sessions, links, second steps, notices and mail, of owners and operators."""
