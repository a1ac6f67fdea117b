//! Numbers in canonical form: integers exact and never through a double, doubles as ECMAScript writes them.

/// Reads any JSON spelling of an integer (`30`, `30.0`, `3e1`).
///
/// `Err` says whether the number has a fraction or is beyond 64 bits.
pub(crate) fn integer(spelling: &str) -> Result<i64, &'static str> {
    // The usual spelling. JSON has none that only this would take: it knows no plus sign in front.
    spelling.parse().or_else(|_| unusual(spelling))
}

fn unusual(spelling: &str) -> Result<i64, &'static str> {
    let (negative, rest) = match spelling.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, spelling),
    };
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Ok(0);
    }
    let trimmed = significant.trim_end_matches('0');
    // How many zeros follow the trimmed digits; an exponent beyond i32 is beyond every bound here.
    let huge = if exponent.starts_with('-') { i32::MIN / 2 } else { i32::MAX / 2 };
    let exponent: i32 = exponent.parse().unwrap_or(huge).clamp(i32::MIN / 2, i32::MAX / 2);
    let shift = |length: usize| i32::try_from(length).unwrap_or(i32::MAX / 4);
    let zeros = exponent - shift(fraction.len()) + shift(significant.len() - trimmed.len());
    let zeros = usize::try_from(zeros).map_err(|_| "must be a whole number")?;
    if trimmed.len().saturating_add(zeros) > 19 {
        return Err("must fit in 64 bits");
    }
    let sign = if negative { "-" } else { "" };
    format!("{sign}{trimmed}{}", "0".repeat(zeros)).parse().map_err(|_| "must fit in 64 bits")
}

/// Reads a double; `-0` is `0`, overflow is refused.
pub(crate) fn double(spelling: &str) -> Result<f64, &'static str> {
    let value: f64 = spelling.parse().map_err(|_| "must be a number")?;
    if value.is_infinite() {
        return Err("must fit in a double");
    }
    Ok(if value == 0.0 { 0.0 } else { value })
}

/// The shortest spelling that reads back as `value` (ECMA-262, Number::toString; RFC 8785, section 3.2.2.3).
pub(crate) fn shortest(value: f64) -> String {
    ryu_js::Buffer::new().format_finite(value).to_owned()
}

/// Is the number spelled as an integer? Decides the type where no schema does.
pub(crate) fn spelled_whole(spelling: &str) -> bool {
    !spelling.contains(['.', 'e', 'E'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_in_every_spelling() {
        let far = "0".repeat(400);
        let cases: Vec<(String, Result<i64, &str>)> = vec![
            ("30".into(), Ok(30)),
            ("30.0".into(), Ok(30)),
            ("3e1".into(), Ok(30)),
            ("3E+1".into(), Ok(30)),
            ("300e-1".into(), Ok(30)),
            ("0.3e2".into(), Ok(30)),
            ("-0".into(), Ok(0)),
            ("-0.0".into(), Ok(0)),
            ("0e99999999999".into(), Ok(0)),
            ("9007199254740993".into(), Ok(9_007_199_254_740_993)),
            ("9223372036854775807".into(), Ok(i64::MAX)),
            ("-9223372036854775808".into(), Ok(i64::MIN)),
            ("9223372036854775808".into(), Err("must fit in 64 bits")),
            ("1e19".into(), Err("must fit in 64 bits")),
            ("1e99999999999".into(), Err("must fit in 64 bits")),
            ("1e-99999999999".into(), Err("must be a whole number")),
            ("1.5".into(), Err("must be a whole number")),
            ("15e-1".into(), Err("must be a whole number")),
            (format!("1{far}e-400"), Ok(1)),
            (format!("0.{far}1e401"), Ok(1)),
        ];
        for (spelling, expected) in cases {
            assert_eq!(integer(&spelling), expected, "{spelling}");
        }
    }

    #[test]
    fn doubles_are_shortest_and_positive_zero() {
        let cases = [
            ("-0", Ok("0")),
            ("100", Ok("100")),
            ("1e2", Ok("100")),
            ("1e21", Ok("1e+21")),
            ("0.0000001", Ok("1e-7")),
            ("333333333.33333329", Ok("333333333.3333333")),
            ("1e400", Err("must fit in a double")),
            ("1e-400", Ok("0")),
        ];
        for (spelling, expected) in cases {
            assert_eq!(double(spelling).map(shortest), expected.map(String::from), "{spelling}");
        }
    }
}
