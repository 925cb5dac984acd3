//! The reference plugins on the same node, with the post's settings, compared with the product.
