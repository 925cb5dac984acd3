//! Statistics on lists that can be checked by hand, and lines that are not samples.

use super::*;

fn quartiles(values: &[f64]) -> (f64, f64, f64) {
    let Spread { low, median, high } = Spread::of(values.to_vec()).unwrap();
    (low, median, high)
}

#[test]
fn median_and_quartiles() {
    assert_eq!(quartiles(&[7.0]), (7.0, 7.0, 7.0));
    assert_eq!(quartiles(&[2.0, 1.0]), (1.25, 1.5, 1.75));
    assert_eq!(quartiles(&[5.0, 1.0, 4.0, 2.0, 3.0]), (2.0, 3.0, 4.0));
    // As numpy.quantile and R's default say.
    assert_eq!(quartiles(&[4.0, 1.0, 3.0, 2.0]), (1.75, 2.5, 3.25));
    assert_eq!(Spread::of(vec![]), None);
}

#[test]
fn one_outlier_moves_no_median() {
    let (_, median, _) = quartiles(&[10.0, 11.0, 9.0, 10.0, 5000.0]);
    assert_eq!(median, 10.0);
}

#[test]
fn sides_are_compared_round_by_round() {
    let text = "sample a 4 0 999999\nsample b 4 0 1\nsample a 4 1 10000\nsample b 4 1 40000\n\
                sample b 4 2 20000\nsample a 4 2 10000\nsample a 4 3 10000\nsample b 4 3 20000\n";
    let pair = Samples::parse(text).unwrap().pair("a", "b", 4).unwrap();
    assert_eq!((pair.a.median, pair.a.low, pair.a.high), (10.0, 10.0, 10.0));
    assert_eq!((pair.b.median, pair.b.low, pair.b.high), (20.0, 20.0, 30.0));
    let ratio = (pair.ratio.low, pair.ratio.median, pair.ratio.high);
    assert_eq!(ratio, (0.375, 0.5, 0.5));
}

#[test]
fn what_was_not_measured_is_an_error() {
    let samples = Samples::parse("sample a 1 1 5\nsample a 1 2 5\nsample b 1 1 5\n").unwrap();
    for (a, b, rails, words) in [
        ("a", "c", 1, "no sample of c with 1 rails"),
        ("a", "a", 4, "no sample of a with 4 rails"),
        ("a", "b", 1, "not the same rounds"),
    ] {
        let error = samples.pair(a, b, rails).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    // Only the warm-up.
    let samples = Samples::parse("sample a 1 0 5\n").unwrap();
    assert!(samples.pair("a", "a", 1).is_err());
}

#[test]
fn a_line_that_is_no_sample_is_named() {
    for line in [
        "",
        "sample a 1 1",
        "sample a 1 1 5 6",
        "sample a one 1 5",
        "sample a 1 1 -5",
        "simple a 1 1 5",
    ] {
        let error = Samples::parse(&format!("sample a 1 2 5\n{line}\n")).unwrap_err();
        assert_eq!(error.to_string(), format!("read {line:?}"));
    }
    assert!(Samples::parse("sample a 1 1 5\nsample a 1 1 6\n").is_err());
}
