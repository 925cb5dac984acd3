//! A fault behind each step, and kill -9: all or none, nothing leaked.
