/* activation.h: the nonlinearities of feed-forward blocks. */
#ifndef WEFT_FORMAT_ACTIVATION_H
#define WEFT_FORMAT_ACTIVATION_H

typedef enum weft_activation {
    WEFT_SILU,      /* x sigmoid(x) */
    WEFT_GELU_TANH, /* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
    WEFT_RELU2,     /* max(x, 0)^2; blocks with it have no gate */
} weft_activation;

#endif
