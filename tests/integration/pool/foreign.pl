# A client of the pool in another language, written from the docstring of core/frame.py alone, with
# what perl-base has. Usage: foreign.pl SOCKET; says in lines what the manager answered.
use strict;
use warnings;
use Socket;

socket(my $pool, PF_UNIX, SOCK_STREAM, 0) or die $!;
connect($pool, sockaddr_un($ARGV[0])) or die $!;
binmode $pool;

sub text  { my $s = shift; return pack('C', 0xa0 + length $s) . $s }    # of 31 characters at most
sub whole { return pack('C Q>', 0xcf, shift) }
sub real  { return pack('C d>', 0xcb, shift) }

# The pairs in their order: `t` is first, `id` second.
sub map_of {
    my @pairs = @_;
    my $body = pack('C n', 0xde, @pairs / 2);
    while (my ($key, $value) = splice @pairs, 0, 2) { $body .= text($key) . $value }
    return $body;
}

sub say_frame {
    my $frame = map_of(@_);
    my $all = pack('N', length $frame) . $frame;
    while (length $all) { substr $all, 0, syswrite($pool, $all) // die($!), '' }
}

sub take {
    my ($count, $found) = (shift, '');
    while (length $found < $count) { sysread($pool, $found, $count - length $found, length $found) or die 'the end' }
    return $found;
}

my $at;    # what is left of the frame that is read

sub cut { return substr $at, 0, shift, '' }

sub value {
    my $first = ord cut(1);
    return $first if $first < 0x80;
    return members($first & 0x0f) if $first < 0x90;
    return [map { value() } 1 .. $first & 0x0f] if $first < 0xa0;
    return cut($first & 0x1f) if $first < 0xc0;
    return undef if $first == 0xc0;
    return $first == 0xc3 ? 'true' : 'false' if $first == 0xc2 || $first == 0xc3;
    return cut(unpack 'C', cut(1)) if $first == 0xc4 || $first == 0xd9;
    return cut(unpack 'n', cut(2)) if $first == 0xc5 || $first == 0xda;
    return cut(unpack 'N', cut(4)) if $first == 0xc6 || $first == 0xdb;
    return unpack 'd>', cut(8) if $first == 0xcb;
    return unpack 'C',  cut(1) if $first == 0xcc;
    return unpack 'n',  cut(2) if $first == 0xcd;
    return unpack 'N',  cut(4) if $first == 0xce;
    return unpack 'Q>', cut(8) if $first == 0xcf;
    return [map { value() } 1 .. unpack 'n', cut(2)] if $first == 0xdc;
    return [map { value() } 1 .. unpack 'N', cut(4)] if $first == 0xdd;
    return members(unpack 'n', cut(2)) if $first == 0xde;
    return members(unpack 'N', cut(4)) if $first == 0xdf;
    return $first - 0x100 if $first >= 0xe0;
    die sprintf 'what is %x?', $first;
}

sub members { return {map { (value(), value()) } 1 .. shift} }

sub hear {
    $at = take(unpack 'N', take(4));
    my $said = value();
    die 'bytes after the map' if length $at;
    my %absent = (v => 1, max => 16_777_216, code => 'protocol');
    return {($said->{t} eq 'welcome' || $said->{t} eq 'error' ? %absent : ()), %$said};
}

sub shown {
    my $value = shift;
    return '-' unless defined $value;
    return '[' . join(',', map { shown($_) } @$value) . ']' if ref $value eq 'ARRAY';
    return '{' . join(',', map { "$_=" . shown($value->{$_}) } sort keys %$value) . '}' if ref $value;
    return $value;
}

sub report {
    my ($said, @keys) = @_;
    print join(' ', $said->{t}, map { "$_=" . shown($said->{$_}) } @keys), "\n";
}

$| = 1;
say_frame(t => text('hello'), v => whole(7), vmin => whole(1), role => text('client'), pid => whole($$));
report(hear(), 'v', 'max');
say_frame(t => text('session'), id => whole(1), op => text('create'), s => text('perl'),
    ttl => real(60), set => map_of(n => whole(7)));
report(hear(), 'id', 's', 'set');
say_frame(t => text('call'), id => whole(2), c => text('remember'), s => text('perl'),
    p => map_of(set => map_of(n => whole(8)), count => map_of(seen => whole(2))), d => real(20));
report(hear(), 'id', 'p');
say_frame(t => text('session'), id => whole(3), op => text('get'), s => text('perl'));
report(hear(), 'id', 'set', 'cnt', 'wk');
say_frame(t => text('call'), id => whole(4), c => text('numbers'), p => whole(3), w => whole(1));
report(hear(), 'id', 'p');
say_frame(t => text('credit'), id => whole(4), n => whole(5));
report(hear(), 'id', 'p') for 1 .. 2;
report(hear(), 'id');
say_frame(t => text('call'), id => whole(5), c => text('die'));
my $failed = hear();
report($failed, 'id', 'code', 'm');
$failed->{data}{t} = 'data';
report($failed->{data}, 'type', 'permanent');
say_frame(t => text('call'), id => whole(6), c => text('nothing'));
report(hear(), 'id', 'code');
say_frame(t => text('call'), id => whole(7), c => text('wait'), p => real(30));
select undef, undef, undef, 0.3;
say_frame(t => text('cancel'), id => whole(7));
report(hear(), 'id', 'code');
say_frame(t => text('what'), id => whole(8));
report(hear(), 'id', 'code');
syswrite $pool, pack('N', 20_000_000);
my $left = 20_000_000;
while ($left) { my $part = $left < 65536 ? $left : 65536; $left -= syswrite $pool, "\0" x $part }
report(hear(), 'id', 'code', 'data');
say_frame(t => text('ping'), id => whole(9));
report(hear(), 'id');
say_frame(t => text('bye'));
print sysread($pool, my $nothing, 1) ? "more\n" : "end\n";
