"""Operations of a wallet's owner, without a grant; one module per noun. Their audit actor is `owner:<path>`."""
