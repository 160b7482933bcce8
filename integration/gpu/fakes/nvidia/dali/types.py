INTERP_LINEAR = "linear"
FLOAT16 = "float16"
