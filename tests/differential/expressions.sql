-- Expressions that test_scalars.py compares with DuckDB on the edge values of a column. A semicolon ends each.

-- column t
reverse(t); translate(t, 'abca', 'xé'); translate(t, 'ë', ''); levenshtein(t, 'abd'); editdist3(t, '');
sha1(t); sha256(t); hex(t); bin(t); unhex(hex(t)); from_hex(hex(t)); to_base64(encode(t)); decode(encode(t)); url_encode(t); bit_length(t);
regexp_extract_all(t, '[a-z]+'); regexp_extract_all(t, '([a-z])([0-9])', 2); regexp_extract_all(t, 'A|B', 0, 'i'); regexp_extract_all(t, '\b\w');
regexp_split_to_array(t, '[,% ]'); str_split_regex(t, 'x?[b0]'); string_split_regex(t, 'O', 'i'); regexp_escape(t); regexp_extract_all(t, '[^a-c]$');
try_strptime(t, '%Y-%m-%d'); try_strptime(t, '%d'); try_strptime(t, '%Y-%m-%d %H:%M:%S'); try_strptime(t, '%H:%M:%S.%f'); try_strptime(t, '%b'); t = any(['a', t]); t > all(['', 'A']); t <> any([t, NULL]); t <= any([]); (t, 1) < ('b', 0);
(t, length(t)) in (('abc', 3), ('', NULL)); row(t, 1); (NULL, t) = (NULL, 'a'); repeat(t, 3); list_aggregate([t, 'b'], 'max'); t = all([NULL]);
t; upper(t); lower(t); length(t); len(t); strlen(t); t || '!'; 'x' || t || 1; concat(t, '-', t); concat_ws('/', t, NULL, t);
trim(t); ltrim(t); rtrim(t); trim(t, ' x'); ltrim(t, 'ab'); rtrim(t, 'bc'); trim(both 'a' from t); lpad(t, 4, 'xy');
rpad(t, 4, 'xy'); lpad(t, 0, 'x'); left(t, 2); left(t, -2); right(t, 2); right(t, -2); left(t, 0); right(t, 0);
right(t, -9); left(t, -9); substring(t, 2); substring(t, 2, 2); substring(t, -2); substring(t, 0, 2); substr(t, -3, 2);
substring(t, 0, -1); substring(t, 3, -2); substring(t, -1, -2); substring(t, 9, -7); substring(t, -9, -2);
position('b' in t); strpos(t, ''); instr(t, 'a'); contains(t, 'b'); contains(t, ''); starts_with(t, 'a'); prefix(t, '');
ends_with(t, 'c'); suffix(t, 'ë'); replace(t, 'a', 'oo'); replace(t, '', 'x'); repeat(t, 2); repeat(t, 0); repeat(t, -1);
split_part(t, ',', 1); split_part(t, ',', 2); split_part(t, ',', -1); split_part(t, ',', 9); split_part(t, ',', 0);
split_part(t, '', 2); split_part(t, t, 1); string_split(t, ','); string_split(t, ''); string_split(t, t); md5(t); ascii(t);
unicode(t); ord(t); chr(65); chr(0); t[1]; t[-1]; t[2:3]; t[-2:]; t[:2]; t[9]; t[0]; list_extract(t, 2); regexp_matches(t, 'a');
regexp_matches(t, '^[a-z]+$'); regexp_matches(t, 'Z', 'i'); regexp_matches(t, 'ë'); regexp_matches(t, '');
regexp_matches(t, 'x.y'); regexp_matches(t, '\w+'); regexp_full_match(t, '[a-z]*'); regexp_full_match(t, 'a|abc');
t similar to '[a-z]+'; t ~ 'abc'; regexp_replace(t, '[a-z]', '_'); regexp_replace(t, '[a-z]', '_', 'g');
regexp_replace(t, '([a-z])([0-9])', '\2\1', 'g'); regexp_replace(t, 'B', '.', 'gi'); regexp_replace(t, '', '-', 'g');
regexp_extract(t, '[0-9]+'); regexp_extract(t, '([a-z]+)([0-9]+)', 2); regexp_extract(t, '([a-z]+)([0-9]+)', 0);
regexp_extract(t, '(z)?b', 1); regexp_extract(t, 'b', 1); regexp_extract(t, '^[^,]*'); regexp_extract(t, '.b', 0);
try_cast(t as bigint); try_cast(t as double); try_cast(t as boolean); try_cast(t as date); try_cast(t as time);
try_cast(t as decimal(6, 2)); try_cast(t as timestamp); try_cast(t as tinyint); nullif(t, 'a'); ifnull(t, 'none');
coalesce(t, 'none'); greatest(t, 'b'); least(t, 'b'); t like '%b%'; t = 'a'; t > 'a'; t in ('a', 'abc');
t not in ('a', NULL); [t, 'x']; {'k': t}; struct_pack(k := t, j := 1).k; t is null; case when t > 'b' then t else 'low' end;
if(contains(t, 'a'), length(t), -1);
t like '%a%b%'; t like '_%_'; t like 'a\%b%' escape '\'; t not like '%,%,%'; t ilike '%OO%B_R%'; t like t; t like '%é%';
string_split(t, NULL); regexp_full_match(t, '(a|A).*'); regexp_replace(t, '(\w)(\w)', '\2\1', 'g'); replace(t, t, 'x');
try_cast(t as timestamptz); try_cast(t || '5' as bigint); try_cast('1e' || t as double); try_cast(t || ' ' as time);
try_cast('2024-02-29 10:20:30 ' || t as timestamp);
try_cast('2024-02-29 10:20:30 ' || chr(9) || t as timestamp);

printf('%5s|%-5s|%.2s|%%', t, t, t); format('{:<6}|{:>6}|{:^7}|{:.2}', t, t, t, t); format(ifnull(t, '') || '!', t) = t || '!';
try_cast(t as uuid); try_cast(t as float); try_cast('550E8400-e29b41d4a716446655' || t || '0000' as uuid); (md5(t))::uuid; (md5(t)::uuid)::varchar; md5(t)::uuid || t;
greatest(md5(t)::uuid, 'f50e8400-e29b-41d4-a716-446655440000'); [md5(t)::uuid]; to_json(md5(t)::uuid); md5(t)::uuid::blob; concat(md5(t)::uuid, t);

-- column n
n::float; n::float = n; n % 1000 + 0.1::float; greatest(n, 0.5::float); n::varchar::float; (n % 1000)::float / 7; list_sum([n::float, 0.1]);
printf('%d|%5d|%-5d|%05d|%+d|% d|%,d|%x|%X|%o', n, n, n, n, n, n, n, n, n, n); printf('%2$d %1$d %%', n, 5); printf('%c', abs(n % 90) + 33); printf('%i %ld', n, n);
format('{}|{:5}|{:<5}|{:^6}|{:05d}|{:+}|{: }|{:,}|{:x}|{:b}', n, n, n, n, n, n, n, n, n, n); format('{1} {0} {{}} {2:_}', n, 5, n); format('{:x} {:o} {:*>22}', n, n, n);
abs(n % 7) << 2 & 7; abs(n % 1000) << 3; n >> 2; n >> 70; factorial(abs(n % 34)::int); hex(n); bin(n % 1000000); trunc(n, -2); trunc(n, 3); add(n % 1000, 1);
subtract(n % 1000, 1); multiply(n % 1000, 2); greatest_common_divisor(n % 1000, 12); least_common_multiple(n % 1000, 12); lgamma(abs(n % 1000) + 0.5);
make_date((n % 1000)::int); make_timestamp(2020, 1 + (abs(n) % 12)::int, 2, 3, 4, (n & 31) + 0.25); make_timestamptz(n % 1000000007);
make_timestamptz(2020, 2, 3, 4, 5, (n & 31) / 2, 'Europe/Berlin'); make_time(1, 2, (n & 31) / 7); n > all([n - 1, 0]); n = any(range((n % 5)::int));
range((n % 20)::int); generate_series((n % 20)::int); range(timestamp '2024-01-01', timestamp '2024-01-09', to_hours(n % 50)); generate_series(date '2024-01-01', date '2024-01-09', to_days(n % 7));
time_bucket(to_minutes(abs(n % 50) + 1), timestamp '2024-01-05 10:17:00'); time_bucket(to_days(abs(n % 9) + 1), date '2024-01-05', date '2024-01-01'); range(1, n % 20, 3); generate_series(5, n % 20, -2); range(0, 9, n % 4); (n, n) >= (1, 1); [(n, 1)] = [(1, 1)];
repeat([n], 2); list_bool_or([n > 1, NULL]); list_first([n]); list_pack(n, 1);
n; abs(n); sign(n); n % 7; mod(n, 7); n & 6; n | 6; xor(n, 6); ~n; round(n % 100000, -1); round(n % 100000, -2);
round(n, 2); round(n); floor(n); ceil(n); sqrt(abs(n)); exp(n / 1e17); n::double; n::varchar; n::boolean; n::decimal(38, 2);
n || ''; concat(n, 'x'); power(n, 2); n ** 2; greatest(n, 3); least(n, 3, NULL); nullif(n, 1); coalesce(n, 5);
n between 0 and 9; n = 1.0; try_cast(n as tinyint); try_cast(n as integer); try_cast(n as uinteger); to_days(n % 100);
to_hours(n % 100); to_minutes(n % 100); to_timestamp(n % 1000000); make_timestamp(n % 1000000007); epoch_ms(n % 1000000007);
gcd(n % 1000, 12); lcm(n % 1000, 12); ln(abs(n % 100000) + 1); log10(abs(n % 100000) + 1); log2(abs(n % 100000) + 1);
log(abs(n % 100000) + 1); log(2, abs(n % 100000) + 1); cbrt(n); sin(n); cos(n); atan(n); atan2(n, 2); degrees(n);
radians(n); pi() * n; n::decimal(20, 0)::varchar; [n]; [n, NULL]; [n][1]; {'a': n}.a; n / 2; n // 3; n % -3; -n; n > 1.5;
chr((abs(n % 1000) + 33)::int); date '2024-01-31' + (n % 1000)::int; make_date(2024, 1, 1) + (n % 100)::int;
timestamp '2024-01-31 10:00:00' + interval (n % 100) month; date '2024-01-31' - interval (n % 100) day;
n * 0.5; n::decimal(38, 2) + 0.125; round(n * 1.5); round(n * 1.25, 1); (n * 1.0)::varchar; n + 1e3-1; -1e3-n; 2*1e2+n;
date_trunc(if(n > 5, 'month', 'year'), date '2024-05-05'); list_sum([n * 0.1, 1]); case when n > 0 then 1.25 else n end;

-- column f
try_cast(f as float); least(abs(f), 1e9)::float + 0.1; least(abs(f), 1e9)::float * 3; least(abs(f), 1e9)::float / 0.7::float; -(least(abs(f), 1e9)::float);
abs(-least(abs(f), 7)::float); round(least(abs(f), 1e9)::float, 2); floor(least(abs(f), 9)::float); ceil(least(abs(f), 9)::float); trunc(least(abs(f), 9)::float); 0.1::float = 0.1; 0.1::float = 0.1::double;
least(abs(f), 1e9)::float % 0.3; [0.1::float, 2.7]; {'a': least(abs(f), 1e9)::float}; least(abs(f), 1e9)::float::decimal(18, 3); to_json(least(abs(f), 1e9)::float); sqrt(least(abs(f), 1e9)::float);
printf('%f|%.2f|%10.3f|%-12.1f|%+.1f', least(abs(f), 1e9), least(abs(f), 1e9), least(abs(f), 7), -1 - least(abs(f), 7), -1 - least(abs(f), 7)); printf('%e|%.3E|%g|%G', f, f, f, f); format('{}|{:e}|{:g}', f, f, f); format('{:.2f}|{:012.3f}|{:<12.1f}|{:,.1f}', least(abs(f), 1e9), least(abs(f), 7), least(abs(f), 1e9), least(abs(f), 1e18));
asinh(least(f, 5)); acosh(f); atanh(f); sinh(least(greatest(f, -5), 5)); cosh(least(greatest(f, -5), 5)); tanh(f); isfinite(f); trunc(f, 1);
gamma(least(greatest(f, -5), 5)); lgamma(abs(f)); f > any([0, NULL]); (f, 1) < (0.5, 2); trunc(f, -2); trunc(f, 20); trunc(f, -400); sinh(f);
f; f::varchar; f || ''; abs(f); sign(f); -f; round(f); round(f, 2); round(f, 1); round(f, -1); round(f, 20); floor(f);
ceil(f); trunc(f); f::boolean; f > 0; f + 1; f * 2; f / 4; isinf(f); isnan(f); greatest(f, 1); nullif(f, 0); concat(f, '!');
try_cast(f as bigint); try_cast(f as integer); try_cast(f as decimal(10, 2)); try_cast(f as decimal(4, 1));
exp(least(f, 1)); cbrt(f); power(f, 2); power(2, least(f, 5000)); power(abs(f), 0.5); atan(f); degrees(least(f, 1));
sqrt(abs(f)); ln(abs(f) + 1); coalesce(f, 0); f = 0.1; f in (0, 1); [f]; f between -1 and 1; 1 / f; 0.5 ** f;

-- column r
r; r::varchar; r || '!'; concat(r, ''); r::double; r::double::varchar; r = 0.1; r in (0.1, 2.5); r = 0.1::double; r between 0.1 and 2.5; r > 0; greatest(r, 0.5);
abs(r); -r; round(r); round(r, 2); floor(r); ceil(r); trunc(r); sign(r); sqrt(abs(r)); greatest(least(r, 1e9), -1e9)::float + 0.1; r / 4; r * 0.1; r + 1::double; r + 1;
coalesce(r, 1.5); case when r > 1 then r else 0.5 end; [r, 0.1]; {'a': r}; to_json(least(abs(r), 1e9)::float); list_sum([r]); isinf(r); r::boolean; nullif(r, 0); (r, 1) < (0.1, 2);
try_cast(r as bigint); try_cast(r as decimal(10, 2)); power(least(r, 9), 2);

-- column p
p::float; p::float + p; p * 0.1::float; p::float = p; p::float < 2.5;
printf('%f %.1f', p, p); format('{} {:.2f} {:8.1f}', p, p, p);
p + '3'; p - '3.456'; '3.456' - p; p / '3'; p % '3.5'; 0.1 + '3.456';
p; p::varchar; p::decimal(10, 4)::varchar; p::decimal(6, 1)::varchar; abs(p); sign(p); -p; round(p); round(p, 1);
round(p, -1); round(p, 5); floor(p); ceil(p); trunc(p); p + 1; p * p; p - 0.005; p % 2; p / 4; p::double; p::bigint;
p::double::varchar; p::boolean; greatest(p, 1); least(p, 1.5); p > 0; p = 2.5; nullif(p, 1); coalesce(p, 0);
try_cast(p as tinyint); (-p)::varchar; try_cast(p as decimal(3, 1)); sqrt(abs(p)); [p]; p in (1, 2.5);
case when p > 0 then p else 0 end;
(p * p)::varchar; (p + 1)::varchar; (p - 0.005)::varchar; round(p, 1)::varchar; p * 0.001; p * p * p; (p % 0.3)::varchar; [p, 1.234];
coalesce(p, 1.23456)::varchar; list_max([p, 0.125]); {'a': p}.a::varchar; sqrt(p * p); p::decimal(38, 30) + 1; greatest(p, 1.005);
trunc(p, 1); trunc(p, -1); trunc(p, 9); round(p, -(1)); round(p, -40); abs(p) * 2; -p + p; p between 0.001 and 2.505; p::decimal(20, 10)::decimal(6, 1);

-- column d
printf('%s', d); format('{:>12}', d);
date_sub('month', d, date '2024-02-29'); date_sub('year', d, date '2023-02-28'); date_sub('week', d, date '2024-03-01'); datesub('quarter', date '2024-02-29', d);
date_sub('century', d, date '2024-03-01'); date_sub('day', d, date '2024-03-01'); date_sub('hour', date '2024-03-01', d); era(d); millennium(d);
range(d, date '2024-03-01', interval '10 years'); generate_series(d, d + interval 3 month, interval 1 month); range(d, d - 3, interval '-1 day'); d = any([date '2024-02-29']);
generate_series(d, d + 3, interval 1 day);
d; d::varchar; d::timestamp; d::timestamptz; year(d); month(d); day(d); quarter(d); week(d); weekofyear(d); dayofweek(d);
isodow(d); dayofyear(d); dayofmonth(d); extract(isoyear from d); extract(decade from d); extract(century from d);
extract(millennium from d); extract(yearweek from d); extract(epoch from d); epoch(d); epoch_ms(d); epoch_us(d); hour(d);
minute(d); extract(second from d); date_part('year', d); datepart('dow', d); extract(doy from d); last_day(d); dayname(d);
monthname(d); date_trunc('year', d); date_trunc('quarter', d); date_trunc('week', d); date_trunc('month', d);
date_trunc('decade', d); date_trunc('hour', d); d + 1; d - 1; d + interval 1 month; d + interval '1 month 1 day';
d - date '2024-01-01'; d + interval '36 hours'; d + time '10:30:00'; date_add(d, interval 1 day); date_add(d, 3);
date_diff('day', d, date '2024-03-01'); date_diff('month', d, date '2024-03-01'); date_diff('year', d, date '2024-03-01');
date_diff('week', d, date '2024-03-01'); date_diff('century', d, date '2024-03-01'); date_part(if(d > '2000-01-01', 'year', 'DOW'), d);
date_trunc('century', greatest(d, '0101-01-01')); date_trunc('millennium', greatest(d, '1001-01-01')); date_diff('quarter', d, date '2024-03-01');
datediff('decade', d, date '2024-03-01'); strftime(d, '%d.%m.%Y'); strftime(d, '%A %B %-d %j %y');
strftime(d, '%a %b %u %w %G-%V %%'); d || ''; concat(d, '!'); d = '2024-02-29'; d > timestamp '2000-01-01 00:00:00';
greatest(d, '2000-01-01'); d between '2000-01-01' and '2024-12-31'; [d]; time_bucket(interval '1 month', d);
time_bucket(interval '5 days', d); time_bucket(interval '1 week', d); time_bucket(interval '1 year', d);
d - timestamp '2020-01-01 00:00:00'; d < '2024-01-01';
date_trunc(upper('month'), d); date_diff(lower('DAY'), d, date '2024-03-01'); d at time zone 'europe/berlin';
d > date '2000-01-01'::timestamp; d::varchar || date '2000-01-01'::varchar;

-- column m
date_sub('month', m, timestamp '2024-02-29 10:00:00'); date_sub('hour', m, timestamp '2024-02-29 10:00:00'); date_sub('decade', m, timestamp '2024-02-29 10:00:00'); epoch_ns(greatest(m, '1970-01-01'));
date_sub('microsecond', timestamp '2024-02-29 10:00:00', m); timezone('Europe/Berlin', m); nanosecond(m); date_part('era', m); range(m, m + interval 2 hour, interval '50 minutes');
m; m::varchar; m::date; m::time; m::timestamptz; year(m); hour(m); minute(m); second(m); extract(millisecond from m);
extract(microsecond from m); extract(epoch from m); epoch(m); epoch_ms(m); epoch_us(m); dayofweek(m); week(m);
date_part('hour', m); date_trunc('day', m); date_trunc('hour', m); date_trunc('minute', m); date_trunc('second', m);
date_trunc('millisecond', m); date_trunc('week', m); date_trunc('quarter', m); date_trunc('microsecond', m);
m + interval 1 month; m - interval '90 minutes'; m + interval '1 day 2 hours 3 milliseconds';
m - timestamp '2024-01-01 00:00:00'; m - date '2024-01-01'; m + to_minutes(5); m + 3 * interval '1 hour';
extract(epoch from m - timestamp '2024-01-01 00:00:00'); m - interval '1 year'; date_add(m, interval 2 hour);
date_diff('hour', m, timestamp '2024-01-01 00:30:00'); date_diff('minute', m, timestamp '2024-01-01 00:30:00');
date_diff('second', m, timestamp '2024-01-01 00:30:00'); date_diff('day', m, timestamp '2024-01-01 00:30:00');
date_diff('millisecond', m, timestamp '2024-01-01 00:30:00'); date_diff('month', m, date '2024-02-01');
datediff('week', m, date '2024-02-01'); strftime(m, '%Y-%m-%dT%H:%M:%S.%f'); strftime(m, '%I:%M %p %-H %-I %g');
m at time zone 'Europe/Berlin'; m at time zone 'UTC'; time_bucket(interval '10 minutes', m);
time_bucket(interval '7 hours', m); time_bucket(interval '1 week', m); time_bucket(interval '2 months', m);
time_bucket(interval '3 days', m, timestamp '2024-01-01 01:00:00'); last_day(m); dayname(m);
time_bucket(interval '1 month', m, timestamp '2024-01-15 06:00:00'); m > '2024-01-01'; m = date '2024-02-29';
m between '2000-01-01' and '2024-01-01 10:00:00'; greatest(m, '2000-01-01'); least(m, timestamp '2000-01-01 00:00:00');
coalesce(m, '2000-01-01'); m || ''; [m]; m - interval '1' day;
m at time zone 'america/NEW_YORK'; m at time zone 'Australia/Lord_Howe'; m at time zone 'Pacific/Apia';
(m at time zone 'Europe/Berlin') at time zone 'Europe/Berlin'; cast(m::varchar || ' Europe/Berlin' as timestamptz);
date_trunc('hour', m at time zone 'Europe/Berlin') at time zone 'Europe/Berlin'; epoch_ms(m) - epoch_ms(m); epoch_ms(m) + 1;

-- column z
timezone('Europe/Berlin', z); timezone('asia/kathmandu', z); epoch_ns(greatest(z, '1970-01-01')); range(z, z + interval 2 day, interval '25 hours'); z = any([z]);
z; z::varchar; z::timestamp; z::date; year(z); hour(z); epoch(z); epoch_ms(z); extract(isodow from z); date_trunc('day', z);
date_trunc('month', z); z + interval 1 month; z - interval '90 minutes'; z - timestamptz '2024-01-01 00:00:00+00';
z at time zone 'Europe/Berlin'; z at time zone 'America/New_York'; z at time zone 'UTC'; z = '2024-02-29 01:00:00+01';
z > timestamp '2000-01-01 00:00:00'; z > timestamptz '2000-01-01 00:00:00-05:30';
date_diff('hour', z, timestamptz '2024-01-01 00:00:00Z'); time_bucket(interval '15 minutes', z);
strftime(z, '%Y-%m-%d %H:%M'); greatest(z, '2000-01-01 00:00:00 Europe/Berlin');
timestamptz '2024-07-01 12:00:00 America/New_York' - z; z || ''; [z]; coalesce(z, date '2020-01-01'); z - date '2024-01-01';
date_trunc('hour', z at time zone 'us/pacific') at time zone 'us/pacific'; z at time zone 'asia/kathmandu';
(z at time zone 'Europe/Berlin') at time zone 'Europe/Berlin'; (z::varchar)::timestamp; epoch_ms(z) / 2;

-- column c
c; c::varchar; hour(c); minute(c); second(c); extract(millisecond from c); c + interval '2 hours';
c - interval '90 minutes'; c > '12:00:00'; c = '12:30'; date '2024-02-29' + c; greatest(c, '06:00:00');
coalesce(c, '00:00'); c || ''; [c];

-- column l
list_first(l); list_last(l); list_any_value(l); list_aggregate(l, 'sum'); list_aggregate(l, 'avg'); list_aggr(l, 'count'); repeat(l, 2); 1 = any(l); 2 > all(l); NULL = any(l); l = any([l]); l > all([[1]]);
1 <> any(l); 1 = all(l); list_bool_and([l = [1]]); row(l, 1); (l, 2) < ([1, 2], NULL);
list_transform(l, lambda x: x * 2); list_filter(l, lambda x, i: x > i); list_reduce(l, lambda a, x: a + x, 1.5);
[x + 1 for x in l if x > 1]; [x * i for x, i in l]; list_reduce(l, lambda a, x, i: a + x * i, len(l)); list_apply([l, [1]], lambda y: [x + len(l) for x in y]);
list_zip(l, ['a', 'b']); list_zip(l, [2.5], true); list_zip(l, l, [l], n > 1); list_resize(l, 2); list_resize(l, 4, n); list_resize(l, NULL);
list_where(l, [true, false, true, true]); list_where([1, 2], [(x > 1) for x in l if x > 0]); list_select(l, [2, 9, -1, 1, 0]);
list_sort(l); list_sort(l, 'DESC', 'NULLS FIRST'); list_reverse_sort(l); list_sort([l, [2], [NULL]]);
l; l[1]; l[-1]; l[0]; l[9]; l[2:3]; l[2:]; l[:2]; l[-2:]; l[3:1]; l[0:2]; l[-9:2]; len(l); length(l); array_length(l);
list_contains(l, 1); list_has(l, 9); array_contains(l, NULL); list_position(l, 3); list_position(l, NULL); list_indexof(l, 9);
list_extract(l, 2);
list_concat(l, [7]); l || [7]; l || l; list_concat(l, NULL); list_append(l, 4); list_prepend(0, l); list_reverse(l);
list_min(l); list_max(l); list_sum(l); list_avg(l); list_count(l); list_slice(l, 1, 2); array_slice(l, 2, 3);
list_has_any(l, [1, 9]); list_has_all(l, [1, 2]); list_unique(l); l = [1, 2]; l <> [1, 2]; l < [1, 2]; l >= [2, NULL];
l > [NULL]; l = [1.0, 2.0]; l is null; greatest(l, [2]); least(l, [2]); coalesce(l, []); l::double[]; l::varchar[]; [l, l];
flatten([l, [5]]); array_to_string(l, '-'); l in ([1, 2], [1]); l between [1] and [2]; nullif(l, [1]);
case when l[1] = 1 then l else [0] end; l is not distinct from [1]; {'k': l}.k[1]; l[len(l)]; l[n]; l[n + 1]; l[(n)::int];
list_sum(l::double[]); array_append(l, NULL); [1, NULL] || l;
array_to_string(l, NULL); array_to_string(l, ''); list_concat(l, l, NULL); list_sum([0.5, l[1]]); [l[1] * 0.5, 1.25];

-- column w
list_sort(w); list_sort(w, 'DESC'); list_reverse_sort(w, 'NULLS FIRST');
w; w[1]; w[-1]; len(w); list_contains(w, 'a'); w || ['z']; array_to_string(w, ','); list_max(w); list_min(w); w < ['b'];
w = ['a', 'b']; list_position(w, 'a'); list_reverse(w); list_has_any(w, ['a']); upper(w[1]); list_count(w); w[1][1];

-- column s
(s, 1) = ({'a': 1, 'b': 'x'}, 1); s = any([s]); [row(s.a, s.b)];
s; s.a; s.b; s['a']; struct_extract(s, 'b'); (s).a; s = {'a': 1, 'b': 'x'}; s < {'a': 1, 'b': NULL}; s > {'a': 1, 'b': 'w'};
s is null; s.a + 1; coalesce(s, {'a': 0, 'b': ''}); [s]; [s][1].b; {'outer': s}.outer.a; s::struct(a double, b varchar);
greatest(s, {'a': 1, 'b': 'y'}); s in ({'a': 1, 'b': 'x'}); case when s.a > 1 then s end;
s is distinct from {'a': 1, 'b': NULL}; S.A;

-- column y
hex(y); md5(y); sha1(y); sha256(y); to_base64(y); base64(y);
y; y::varchar; octet_length(y); y = 'abc'::blob; y > 'ab'; coalesce(y, '\xFF'::blob); [y];

-- column b
printf('%s %d %6s', b, b, b); format('{} {:d} {:>6}', b, b, b);
b; b::varchar; b::int; b || ''; concat(b, 'x'); b = 'true'; b and true; not b; greatest(b, false); [b]; b::double;
b::decimal(3, 1); b is true;

-- column j
j::json; j::json::varchar; json(j); j -> 'a'; j ->> 'a'; j -> 'a' -> 'b'; j -> '$.a.b[1].c'; j ->> '$.a.b[#-1]'; j -> 0; j ->> -1; j -> '/a/b/0'; j -> '/b/5';
j -> '$."a b"'; j -> ''; j -> '$'; j ->> '$'; (j -> 'b') = '1'; (j -> 'a') is null; j ->> 'b' = '1'; upper(j -> 'a'); coalesce(j -> 'a', j); j -> '0'; j -> '/0';
json_extract(j, 'a b'); json_extract(j, if(j like '%a%', '$.a', '$[1]')); json_extract_string(j, '$.b[0]'); json_extract_path(j, 'a'); json_extract_path_text(j, '$[#-2]');
json_valid(j); json_valid(j || ']'); json_valid(j || ' '); json_type(j); json_type(j, 'a'); json_type(j, '$[0]'); json_array_length(j); json_array_length(j, 'b');
json_keys(j); json_keys(j, 'a'); json_exists(j, '$."a b"'); json_exists(j, '$[3][0]'); j -> 'a"b'; json_extract('{"a\"~": 1}', 'a"~0'); json_value(j, 'a'); json_value(j, '$[0]'); json_value(j, 1);
try_cast(j as json); try_cast(j || '}' as json); try_cast(j::json as bigint); try_cast(j::json as double); try_cast(j::json as boolean);
try_cast(j::json as decimal(38, 2)); try_cast(j::json as date); try_cast(j::json as tinyint); try_cast(json_quote('1.5') as int); try_cast(json_quote('1e3') as int); try_cast(json_quote('t') as boolean); (j::json).a; (j::json)['a b']; (j::json)[0]; j::json || 'x';
to_json(j); to_json(j::json); json_array(j, 1, NULL, j::json); json_object('k', j::json, ifnull(j, 'x'), 1.5::double); to_json([j]); to_json({'A': j, 'b': [1.25::double, NULL]}); json_quote(1);
json_object(); json_array(); '[1, "2", null]'::json::bigint[]; '{"a": [1], "b": null}'::json::struct(a int[], b json); '["a", 1.50, [1.50]]'::json::varchar[]; length(j::json);
(json_object('$x', j))."$x"; (json_object('/x', j))['/x']; (json_array(j))['0']; (json_object('-1', j))['-1']; (json_object('0', j))."0"; json_quote(chr(31) || '\u001f' || chr(8) || chr(10) || chr(127)); j::json = j; [j::json]; j::json in ('null', 'true'); json_array(true, 1, 1.5::double, date '2024-01-31', time '10:00:00', 'é"'); json_quote(j); row(j, 1)::json;
to_json(timestamp '2024-01-31 10:00:00.5'); to_json(1e21); (1e-7)::json; true::json; {'a': [1]}::json; 170141183460469231731687303715884105727::json; json_type(1::json);

-- column k
k; k['a']; k['x']; k[NULL]; map_keys(k); map_values(k); map_entries(k); cardinality(k); map_contains(k, 'b'); map_extract(k, 'a'); element_at(k, 'é'); k is null;
map_extract(k, NULL); map_extract_value(k, ''); map_concat(k, map {'a': 9::bigint, 'z': 0}); map_concat(map {'a': 9::bigint}, k); map_from_entries(map_entries(k)); k = map {'a': 1};
map(map_keys(k), map_values(k)) = k; k < map {'a': 2}; greatest(k, map {'b': NULL}); coalesce(k, map {'none': 1}); k::map(varchar, double); (k::map(varchar, varchar))['a']; map {}; map_keys(map());
map {'x': k['a'], 'y': 2}; map {'x': k}['x']['a']; {'m': k}.m['a']; len(map_keys(k)); k in (map {'a': 1}, map {}::map(varchar, bigint)); map {1: 'a', 2: 'b'}[cardinality(k)];
