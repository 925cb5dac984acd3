//! Carries out a plan on the kernel, undoes it, and observes the result.
